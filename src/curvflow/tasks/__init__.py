"""HOW results are computed. No disk, no Dask, no Prefect."""
