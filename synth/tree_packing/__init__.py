"""Tree packing: spanning trees and arborescences that together use all that links can carry.

In: a network and roots. Out: trees with their rates; the `integral_` modules give whole multiples of a
unit.
"""
