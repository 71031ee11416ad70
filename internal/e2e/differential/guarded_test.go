package differential

import _ "github.com/kubewasm/kubewasm/internal/guarded"
