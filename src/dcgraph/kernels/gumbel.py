"""From random bits to Gumbel noise, for all kernels that draw it."""

import os

import triton
import triton.language as tl

if os.environ.get("TRITON_INTERPRET") == "1":  # the interpreter knows no other logarithm

    @triton.jit
    def _log2(x):
        return tl.log2(x)

else:
    from triton.language.extra import libdevice

    @triton.jit
    def _log2(x):
        """One instruction, with an error of 2e-7; Triton's own is a polynomial of twenty."""
        return libdevice.fast_log2f(x)


LOG2_E = tl.constexpr(1.4426950408889634)
LN_2 = tl.constexpr(0.6931471805599453)


@triton.jit
def log2_exponential(own, other):
    """log2 E of an exponential E = -log(1 - u), with u in (0, 1) from 23 + 23 random bits.

    Bits become a float in [1, 2) as its mantissa. ``own`` gives the first bits of u and ``other``
    those below, so that u is fine near 0, where the large Gumbel values -log E come from.
    """
    first = ((own & 0x007FFFFF) | 0x3F800000).to(tl.float32, bitcast=True)
    below = ((other >> 9) | 0x3F800001).to(tl.float32, bitcast=True)  # the last bit keeps u > 0
    u = below * 1.1920928955078125e-07 + (first - 1.00000011920928955)
    series = u * (1.0 + u * (0.5 + u * (0.33333333 + u * 0.25)))
    # 1 - u has lost the digits of a small u, and the factor keeps it above 0.
    logarithm = _log2(1.0 - u * 0.99999988079071045) * -LN_2
    return _log2(tl.where(u < 0.03125, series, logarithm))


@triton.jit
def log2_exponentials(a, b, c, d):
    """Four of them from four words. Each word also refines its neighbour, below 2^-23 of u: every
    draw has the exact law, and two neighbours share nothing that could be seen."""
    return (
        log2_exponential(a, b),
        log2_exponential(b, c),
        log2_exponential(c, d),
        log2_exponential(d, a),
    )


@triton.jit
def gumbel_of_bits(own, other):
    """Gumbel(0, 1) noise from two words of random bits, of which the second may be used again."""
    return log2_exponential(own, other) * -LN_2
