package serving

import (
	"log"
	"log/slog"
	"strings"

	"github.com/kubewasm/kubewasm/internal/lograte"
)

// errorLog hands what net/http has to say to logger, but for TCP probes, which
// hang up in the handshake.
func errorLog(logger *slog.Logger) *log.Logger {
	logger = lograte.Logger(logger, lograte.New(lograte.DefaultBytes)) // Clients can repeat it.
	return log.New(lineWriter(func(line string) {
		if line = strings.TrimSpace(line); logger != nil && !strings.HasSuffix(line, ": EOF") {
			logger.Warn("serve webhook", "err", line)
		}
	}), "", 0)
}

// lineWriter is a func as an io.Writer of lines.
type lineWriter func(line string)

func (w lineWriter) Write(p []byte) (int, error) {
	w(string(p))
	return len(p), nil
}
