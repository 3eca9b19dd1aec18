# SPDX-License-Identifier: MIT
"""Scalar instructions: the SALU, its operands, loads through the scalar cache."""
