package e2e

import _ "github.com/kubewasm/kubewasm/internal/testkit/guarded"
