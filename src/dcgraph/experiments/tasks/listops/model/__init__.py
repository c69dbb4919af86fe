"""The models of ListOps that pass messages along a tree: ``latent_tree`` is the paper's."""
