# SPDX-License-Identifier: MIT
"""Vector instructions: VALU, packed and mixed forms, conversions, lanes that exchange, matrix instructions."""
