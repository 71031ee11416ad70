package declared_test

import _ "github.com/kubewasm/kubewasm/internal/testkit/guarded"
