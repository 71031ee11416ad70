package serving

import (
	"log"
	"log/slog"
	"strings"

	"github.com/kubewasm/kubewasm/internal/lograte"
)

// errorLog passes messages of net/http to logger, except those about TCP probes, which hang up in
// the handshake.
func errorLog(logger *slog.Logger) *log.Logger {
	logger = lograte.Logger(logger, lograte.New(lograte.DefaultBytes)) // Clients can provoke messages.
	return log.New(lineWriter(func(line string) {
		if line = strings.TrimSpace(line); logger != nil && !strings.HasSuffix(line, ": EOF") {
			logger.Warn("serve a connection", "err", line)
		}
	}), "", 0)
}

// lineWriter adapts a func to an io.Writer of lines.
type lineWriter func(line string)

func (w lineWriter) Write(p []byte) (int, error) {
	w(string(p))
	return len(p), nil
}
