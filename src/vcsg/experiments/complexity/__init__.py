"""Table 1 measured: IFO calls to ‖∇f‖² ≤ ε on drawn problems with known L, and how they grow with n and with 1/ε."""
