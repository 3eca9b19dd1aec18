# SPDX-License-Identifier: MIT
"""The checks behind the exercises: each prints [OK] and why, or raises a GuideError that holds a hint."""
