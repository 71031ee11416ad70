package capacity

import _ "github.com/kubewasm/kubewasm/internal/testkit/guarded"
