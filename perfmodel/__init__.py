"""perfmodel: the formulas of the course, on floats, NumPy arrays and SymPy symbols."""
