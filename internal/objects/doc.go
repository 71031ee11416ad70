// Package objects keeps the Pods and Nodes that guests of a scheduler are asked about.
//
// A [Store] knows an object by its pointer and gives each of its versions an [abi.Ref]. What a
// guest asks for of an object is encoded when it asks. The fields that it asked for are its
// read set: an object has another version only when one of them differs, and a [ReadSet] tells
// which Nodes are equal for the guest.
package objects
