"""Quality as a function of depth: every figure of a curve comes from one unroll."""
