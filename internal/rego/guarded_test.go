package main

import _ "github.com/kubewasm/kubewasm/internal/guarded"
