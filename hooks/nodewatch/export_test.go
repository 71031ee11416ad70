package nodewatch

var ReadTopology = readTopology
