package parity

import _ "github.com/kubewasm/kubewasm/internal/guarded"
