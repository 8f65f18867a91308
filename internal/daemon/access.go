package daemon

import (
	"errors"
	"log/slog"
	"net"
	"os"

	"zkelectd/internal/config"
	"zkelectd/internal/operator"
	"zkelectd/internal/web"
)

// apiAccess holds the API's access settings, read from the files that the configuration names.
type apiAccess struct {
	public string // the address for other hosts, "" for none
	config web.Config
	tokens web.Tokens
	hosts  []string // http.allowed_hosts
	named  bool     // http.token_file is set
}

func readAPIAccess(cfg config.Config) (apiAccess, error) {
	path, _ := config.SecretFile(cfg.HTTP.WebConfig, os.Getenv)
	settings, err := web.ReadConfig(path)
	path, systemd := config.SecretFile(cfg.HTTP.TokenFile, os.Getenv)
	tokens, tokenErr := web.ReadTokens(path, systemd)
	return apiAccess{cfg.HTTP.Public(false), settings, tokens, cfg.HTTP.AllowedHosts, cfg.HTTP.TokenFile != ""}, errors.Join(err, tokenErr)
}

// CheckFiles checks the files that a configuration names.
func CheckFiles(cfg config.Config) error {
	_, err := readAPIAccess(cfg)
	return errors.Join(operator.Access(cfg, os.Getenv).Check(), err)
}

// warn logs a warning if tokens are sent over the network in clear text.
func (a apiAccess) warn(log *slog.Logger) {
	host, _, err := net.SplitHostPort(a.public)
	if ip := net.ParseIP(host); !a.named || err != nil || a.config.TLSEnabled() || host == "localhost" || ip.IsLoopback() {
		return
	}
	log.Warn("the tokens in http.token_file are sent over the network in clear text: set http.web_config for TLS", "http.listen", a.public)
}
