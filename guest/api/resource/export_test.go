package resource

// ScaledValue is what Value and MilliValue are made of.
func (q Quantity) ScaledValue(scale int32) int64 { return q.scaled(scale) }
