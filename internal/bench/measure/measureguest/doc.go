// Package measureguest is what plugins of package measure use.
package measureguest
