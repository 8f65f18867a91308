package main

import (
	"errors"
	"log/slog"
	"net"
	"os"
	"strings"

	"zkelectd/internal/config"
	"zkelectd/internal/daemon"
	"zkelectd/internal/httpapi"
)

// front is how the HTTP API is secured: what stands in the files that a configuration names.
type front struct {
	listen string
	web    httpapi.Web
	tokens httpapi.Tokens
	named  bool // there is a token file
}

func readFront(cfg config.Config) (front, error) {
	path, _ := config.SecretFile(cfg.HTTP.WebConfig, os.Getenv)
	web, err := httpapi.ReadWeb(path)
	path, systemd := config.SecretFile(cfg.HTTP.TokenFile, os.Getenv)
	tokens, tokenErr := httpapi.ReadTokens(path, systemd)
	return front{cfg.HTTP.Listen, web, tokens, cfg.HTTP.TokenFile != ""}, errors.Join(err, tokenErr)
}

// checkFiles tells what is wrong with the files that a configuration names.
func checkFiles(cfg config.Config) error {
	_, err := readFront(cfg)
	return errors.Join(daemon.Access(cfg, os.Getenv).Check(), err)
}

// open warns of tokens that others can listen to on their way.
func (f front) open(log *slog.Logger) {
	host, _, err := net.SplitHostPort(f.listen)
	socket := strings.HasPrefix(f.listen, "unix:")
	if ip := net.ParseIP(host); !f.named || socket || err != nil || f.web.Secure() || host == "localhost" || ip.IsLoopback() {
		return
	}
	log.Warn("the tokens of http.token_file pass over the network in clear text: set http.web_config for TLS", "http.listen", f.listen)
}
