package abi

import "math"

// NoEntry is what object_entry answers for a key that a map has not.
const NoEntry = math.MaxUint32
