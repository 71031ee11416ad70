// Package c has the headers with which guests are written in C. kubewasm build writes them
// to its cache and passes them to clang; [WriteHeaders] is for other build systems.
package c
