package main

import (
	"fmt"

	"github.com/kubewasm/kubewasm/admission/audit"
)

// suiteOf returns the result of an audit as a suite: a case for each policy, which fails if the
// policy denies objects or has no verdict on one, and one for objects that were not audited.
func suiteOf(found *audit.Result) *suite {
	s := &suite{Name: "kubewasm audit", Time: seconds(found.Duration.Duration)}
	for _, p := range found.Policies {
		var failures []string
		if p.Error != "" {
			failures = append(failures, p.Error)
		}
		for _, f := range found.Findings {
			if f.Policy == p.Name && f.Outcome != audit.Patched {
				object := f.Kind + " " + f.Name
				if f.Namespace != "" {
					object = f.Kind + " " + f.Namespace + "/" + f.Name
				}
				failures = append(failures, fmt.Sprintf("%s: %s: %s", object, f.Outcome, f.Message))
			}
		}
		s.add(p.Name, 0, failures...)
	}
	if len(found.Errors) != 0 {
		s.add("everything is audited", 0, found.Errors...)
	}
	return s
}
