// Package objects keeps the Pods and Nodes that a scheduler passes to guests.
//
// A [Store] knows an object by its pointer and gives each of its versions an [abi.Ref]. The fields
// requested by a guest are encoded on request. They form its read set: an object has a new version
// only when one of them differs, and a [ReadSet] tells whether Nodes are equal for the guest.
package objects
