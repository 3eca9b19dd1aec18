# SPDX-License-Identifier: MIT
"""What can be known about MI300X code on any machine: compile, limits, occupancy, IR and ISA."""
