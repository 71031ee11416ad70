package serving

import "time"

const (
	// MaxTimeout is the longest timeout allowed for a webhook in Kubernetes; a longer one is cut.
	MaxTimeout = 30 * time.Second
	// DeniedMessage is the message of the log line for a denial. The line has the attributes policy,
	// uid, group, kind, namespace, name, operation, user and message. They hold no confidential
	// value.
	DeniedMessage = "policy denied the request"
)
