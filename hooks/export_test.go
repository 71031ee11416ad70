package hooks

var ErrNodeUnknown = errNodeUnknown
