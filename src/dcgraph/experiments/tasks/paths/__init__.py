"""Path queries over knowledge graphs: who is at the end of a path, hop by hop?"""
