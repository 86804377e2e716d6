// Package connection says how to reach Temporal: address, namespace, TLS, API key, and the keys that encrypt payloads.
// A flag has precedence over the environment variable that Temporal's own tools read, and the variable has precedence
// over their configuration file. Every process and the program millwright use this package. It makes no connection:
// Options returns the options of a client.
package connection

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"os"
	"strconv"
	"strings"

	"github.com/BurntSushi/toml"
	"github.com/spf13/pflag"
	"go.temporal.io/sdk/client"
	"go.temporal.io/sdk/contrib/envconfig"
	"google.golang.org/grpc"

	"millwright/workflows/run"
)

// defaultAddress is the default of Temporal's own tools, as an IP address: no name must be resolved.
const defaultAddress = "127.0.0.1:7233"

// Flags are the flags of a connection, with the values of environment and configuration file for those that are not
// given. The zero value is invalid: Register sets the defaults.
type Flags struct {
	Address   string
	Namespace string

	tls         *bool // nil: TLS is used if another setting of TLS or an API key is given
	files       files
	serverName  string
	apiKeyFile  string
	payloadKeys string

	profile envconfig.ClientConfigProfile // of environment and configuration file
	unread  error                         // why the configuration file cannot be used
}

// Register adds the flags to a set. Their defaults are what the environment or the configuration file says. Options
// returns the error of a configuration file that cannot be read.
func (f *Flags) Register(set *pflag.FlagSet) {
	f.profile, f.unread = envconfig.LoadClientConfigProfile(envconfig.LoadClientConfigProfileOptions{})
	var given envconfig.ClientConfigTLS
	if f.profile.TLS != nil {
		given = *f.profile.TLS
	}
	set.StringVar(
		&f.Address,
		"temporal-address",
		cmp.Or(f.profile.Address, defaultAddress),
		"host:port of the Temporal frontend",
	)
	set.StringVar(&f.Namespace, "temporal-namespace", cmp.Or(f.profile.Namespace, run.Namespace), "Temporal namespace")
	set.BoolFunc(
		"temporal-tls",
		"connect to Temporal with TLS; by default if a certificate or an API key is given",
		func(text string) error {
			on, err := strconv.ParseBool(text)
			f.tls = &on
			return err
		},
	)
	set.StringVar(
		&f.files.certificate,
		"temporal-tls-cert-path",
		given.ClientCertPath,
		"PEM file of the certificate that Temporal demands (mTLS); read again for each new connection",
	)
	set.StringVar(
		&f.files.key,
		"temporal-tls-key-path",
		given.ClientKeyPath,
		"PEM file of the private key of --temporal-tls-cert-path",
	)
	set.StringVar(
		&f.files.authority,
		"temporal-tls-ca-path",
		given.ServerCACertPath,
		"PEM file of the CA of Temporal's certificate, read again for each new connection; empty means the CAs of the system",
	)
	set.StringVar(
		&f.serverName,
		"temporal-tls-server-name",
		given.ServerName,
		"name in Temporal's certificate; empty means the host of --temporal-address",
	)
	set.StringVar(
		&f.apiKeyFile,
		"temporal-api-key-path",
		"",
		"file of the API key, read again for each request; empty means TEMPORAL_API_KEY or the configuration file",
	)
	set.StringVar(
		&f.payloadKeys,
		"payload-keys-path",
		"",
		"file of the keys that encrypt payloads; empty means that they are not encrypted; set the same value on all processes",
	)
}

// Options returns the options of a client, without logger and metrics. Files are read, so that a missing one is found
// at once. An error names files and flags, and never what is in a file.
func (f *Flags) Options() (client.Options, error) {
	if f.unread != nil {
		return client.Options{}, unreadable(f.unread)
	}
	profile := f.profile
	profile.Address, profile.Namespace, profile.TLS = f.Address, f.Namespace, nil
	if f.apiKeyFile != "" {
		profile.APIKey = "" // the key in the file is used
	}
	options, err := profile.ToClientOptions(envconfig.ToClientOptionsRequest{})
	if err != nil {
		return client.Options{}, fmt.Errorf("use the configuration of Temporal's clients: %w", err)
	}
	if f.apiKeyFile != "" {
		if _, err := f.apiKey(context.Background()); err != nil {
			return client.Options{}, err
		}
		options.Credentials = client.NewAPIKeyDynamicCredentials(f.apiKey)
	}
	var dial []grpc.DialOption
	options.ConnectionOptions.TLS, options.ConnectionOptions.TLSDisabled = nil, true
	if settings := f.tlsSettings(); settings != nil {
		config, err := settings.load()
		if err != nil {
			return client.Options{}, err
		}
		options.ConnectionOptions.TLS, options.ConnectionOptions.TLSDisabled = config, false
		dial = append(dial, grpc.WithTransportCredentials(newReloading(settings)))
	}
	if f.payloadKeys != "" {
		keys, err := ReadKeys(f.payloadKeys)
		if err != nil {
			return client.Options{}, err
		}
		encryption, err := keys.interceptors()
		if err != nil {
			return client.Options{}, err
		}
		dial = append(dial, grpc.WithChainUnaryInterceptor(encryption...))
	}
	options.ConnectionOptions.DialOptions = dial
	options.DataConverter = DataConverter()
	return options, nil
}

// unreadable returns the error for a configuration file that cannot be read. For a syntax error it names only the
// place: the parser's text shows a part of the file, which may be the API key.
func unreadable(err error) error {
	if syntax, ok := errors.AsType[toml.ParseError](err); ok {
		err = fmt.Errorf("line %d, at the key %q: it is not TOML", syntax.Position.Line, syntax.LastKey)
	}
	return fmt.Errorf(
		"read the configuration file of Temporal's clients (TEMPORAL_CONFIG_FILE, else temporal.toml in the user's folder): %w",
		err,
	)
}

// apiKey reads the file at each request, so that a new key needs no restart.
func (f *Flags) apiKey(context.Context) (string, error) {
	text, err := os.ReadFile(f.apiKeyFile)
	if err != nil {
		return "", fmt.Errorf("--temporal-api-key-path: %w", err)
	}
	key := strings.TrimSpace(string(text))
	if key == "" {
		return "", fmt.Errorf("--temporal-api-key-path: %s is empty", f.apiKeyFile)
	}
	return key, nil
}

// tlsSettings returns the settings of TLS, with the flags; nil without TLS. A flag for a file or for the server's name
// turns TLS on, even if the environment or the configuration file turns it off. --temporal-tls decides over all others.
func (f *Flags) tlsSettings() *tlsSettings {
	var given envconfig.ClientConfigTLS
	on := f.profile.APIKey != "" || f.apiKeyFile != ""
	if f.profile.TLS != nil {
		given, on = *f.profile.TLS, !f.profile.TLS.Disabled
	}
	byFlag := files{given.ClientCertPath, given.ClientKeyPath, given.ServerCACertPath} != f.files ||
		given.ServerName != f.serverName
	if on = on || byFlag; f.tls != nil {
		on = *f.tls
	}
	if !on {
		return nil
	}
	s := &tlsSettings{
		files: f.files, serverName: f.serverName, unverified: given.DisableHostVerification,
		certificate: given.ClientCertData, key: given.ClientKeyData, authority: given.ServerCACertData,
	}
	if f.files.certificate != given.ClientCertPath || f.files.key != given.ClientKeyPath {
		s.certificate, s.key = nil, nil // a flag has precedence over a text in the environment
	}
	if f.files.authority != given.ServerCACertPath {
		s.authority = nil
	}
	return s
}

// errHalf says that a certificate was given without its private key, or a private key without its certificate.
var errHalf = errors.New(
	"the certificate that Temporal demands and its private key belong together: give both, or neither (--temporal-tls-cert-path, --temporal-tls-key-path)",
)
