"""Krylov methods: eigenpairs, Ritz data and quadrature."""
