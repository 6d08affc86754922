"""Drawing shared by figures: sheets, captions, contours, scatter and spectral data."""
