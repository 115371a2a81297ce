"""How well one colour stands out from another, as the Web Content Accessibility Guidelines define it."""


def luminance(colour):
    """Relative luminance of a colour such as "#0b66b0"."""
    parts = (int(colour[i : i + 2], 16) / 255 for i in (1, 3, 5))
    red, green, blue = (part / 12.92 if part <= 0.04045 else ((part + 0.055) / 1.055) ** 2.4 for part in parts)
    return 0.2126 * red + 0.7152 * green + 0.0722 * blue


def contrast(one, other):
    """Ratio of the two luminances, from 1 to 21; text needs 4.5."""
    dark, light = sorted((luminance(one), luminance(other)))
    return (light + 0.05) / (dark + 0.05)
