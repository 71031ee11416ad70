package management

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"net"
	"os"
	"time"

	"github.com/kubewasm/kubewasm/internal/serving"
)

// Config is the address of the routes, and who may use them.
type Config struct {
	// Address is the address to listen on, such as 127.0.0.1:9443.
	Address string `json:"address"`
	// CertFile and KeyFile are the certificate and its key, PEM. They are followed.
	CertFile string `json:"certFile"`
	KeyFile  string `json:"keyFile"`
	// TokenFile is the file of the bearer token of clients. It is read for each request.
	TokenFile string `json:"tokenFile"`
	// ClientCAFile is the file of the CA that signs certificates of clients, PEM, and ClientNames
	// are the common and DNS names in those that may use the routes.
	ClientCAFile string   `json:"clientCAFile"`
	ClientNames  []string `json:"clientNames"`
}

// Check returns all mistakes.
func (c *Config) Check() error {
	var errs []error
	fail := func(format string, args ...any) { errs = append(errs, fmt.Errorf("management."+format, args...)) }
	if _, _, err := net.SplitHostPort(c.Address); err != nil {
		fail("address %q: %w", c.Address, err)
	}
	if c.CertFile == "" || c.KeyFile == "" {
		fail("certFile and keyFile are required: tokens must not be readable on the network")
	}
	if c.TokenFile == "" && len(c.ClientNames) == 0 {
		fail("tokenFile and clientNames are both missing: nobody could use the routes")
	}
	if (len(c.ClientNames) == 0) != (c.ClientCAFile == "") {
		fail("clientNames and clientCAFile need each other")
	}
	return errors.Join(errs...)
}

// Run serves the routes until ctx ends.
func (c *Config) Run(ctx context.Context, members func() []Member, logger *slog.Logger) error {
	auth := Auth{ClientNames: c.ClientNames}
	if c.TokenFile != "" {
		auth.Token = func() (string, error) {
			token, err := os.ReadFile(c.TokenFile)
			return string(token), err
		}
	}
	server := serving.Server{
		Name: "serve the management routes", Addr: c.Address, CertFile: c.CertFile, KeyFile: c.KeyFile,
		Handler: Serve(auth, members), WriteTimeout: 3 * time.Minute, MaxConnections: 64, DrainDelay: -1, Logger: logger,
	}
	if c.ClientCAFile != "" {
		server.ClientCAFiles = []string{c.ClientCAFile}
	}
	if err := server.Run(ctx); err != nil {
		return err
	}
	return context.Cause(ctx)
}
