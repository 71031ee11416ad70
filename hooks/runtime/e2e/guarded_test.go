package e2e

import _ "github.com/kubewasm/kubewasm/internal/guarded"
