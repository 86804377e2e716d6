// Package connection has the settings to reach Temporal: address, namespace, TLS, API key, and the keys that encrypt
// payloads. A flag has precedence over an environment variable of Temporal's own tools, and a variable has precedence
// over their configuration file. Every process and the program millwright use package connection. Package connection
// opens no connection: Options returns the options of a client.
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

// defaultAddress is the default address of Temporal's own tools, as an IP address, so that no DNS lookup is necessary.
const defaultAddress = "127.0.0.1:7233"

// Flags are the flags of a connection. A flag that is not set has the value of the environment or the configuration
// file. The zero Flags is invalid: Register sets the defaults.
type Flags struct {
	Address   string
	Namespace string

	isTLSEnabled    *bool // if nil, TLS is used if another TLS setting or an API key is set
	tlsFiles        tlsFiles
	tlsServerName   string
	apiKeyFile      string
	payloadKeysFile string

	profile         envconfig.ClientConfigProfile // settings of environment and configuration file
	configFileError error                         // error of the configuration file, if it cannot be used
}

// Register adds the flags to a set. The defaults of the flags come from the environment or the configuration file. If
// the configuration file is unreadable, Options returns the error.
func (f *Flags) Register(set *pflag.FlagSet) {
	f.profile, f.configFileError = envconfig.LoadClientConfigProfile(envconfig.LoadClientConfigProfileOptions{})
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
	set.StringVar(
		&f.Namespace,
		"temporal-namespace",
		cmp.Or(f.profile.Namespace, run.TemporalNamespace),
		"Temporal namespace",
	)
	set.BoolFunc(
		"temporal-tls",
		"connect to Temporal with TLS; by default if a certificate or an API key is given",
		func(text string) error {
			on, err := strconv.ParseBool(text)
			f.isTLSEnabled = &on
			return err
		},
	)
	set.StringVar(
		&f.tlsFiles.certificatePath,
		"temporal-tls-cert-path",
		given.ClientCertPath,
		"PEM file of the certificate that Temporal demands (mTLS); read again for each new connection",
	)
	set.StringVar(
		&f.tlsFiles.keyPath,
		"temporal-tls-key-path",
		given.ClientKeyPath,
		"PEM file of the private key of --temporal-tls-cert-path",
	)
	set.StringVar(
		&f.tlsFiles.caCertificatePath,
		"temporal-tls-ca-path",
		given.ServerCACertPath,
		"PEM file of the CA of Temporal's certificate, read again for each new connection; empty means the CAs of the system",
	)
	set.StringVar(
		&f.tlsServerName,
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
		&f.payloadKeysFile,
		"payload-keys-path",
		"",
		"file of the keys that encrypt payloads; empty means that they are not encrypted; set the same value on all processes",
	)
}

// ClientOptions returns the options of a client, without logger and metrics. ClientOptions reads all files, so that a
// missing file is noticed at once. An error names files and flags, and never shows the content of a file.
func (f *Flags) ClientOptions() (client.Options, error) {
	if f.configFileError != nil {
		return client.Options{}, unreadableConfigError(f.configFileError)
	}
	profile := f.profile
	profile.Address, profile.Namespace, profile.TLS = f.Address, f.Namespace, nil
	if f.apiKeyFile != "" {
		profile.APIKey = "" // the key in the file has precedence
	}
	options, err := profile.ToClientOptions(envconfig.ToClientOptionsRequest{})
	if err != nil {
		return client.Options{}, fmt.Errorf("use the configuration of Temporal's clients: %w", err)
	}
	if f.apiKeyFile != "" {
		if _, err := f.readAPIKey(context.Background()); err != nil {
			return client.Options{}, err
		}
		options.Credentials = client.NewAPIKeyDynamicCredentials(f.readAPIKey)
	}
	var dial []grpc.DialOption
	options.ConnectionOptions.TLS, options.ConnectionOptions.TLSDisabled = nil, true
	if settings := f.newTLSSettings(); settings != nil {
		config, err := settings.loadTLSConfig()
		if err != nil {
			return client.Options{}, err
		}
		options.ConnectionOptions.TLS, options.ConnectionOptions.TLSDisabled = config, false
		dial = append(dial, grpc.WithTransportCredentials(newReloadingCredentials(settings)))
	}
	if f.payloadKeysFile != "" {
		keys, err := ReadKeys(f.payloadKeysFile)
		if err != nil {
			return client.Options{}, err
		}
		encryption, err := keys.encryptionInterceptors()
		if err != nil {
			return client.Options{}, err
		}
		dial = append(dial, grpc.WithChainUnaryInterceptor(encryption...))
	}
	options.ConnectionOptions.DialOptions = dial
	options.DataConverter = DataConverter()
	return options, nil
}

// unreadableConfigError returns the error for an unreadable configuration file. For a syntax error, the returned error
// contains only the position, because the parser's message quotes the file, which may contain the API key.
func unreadableConfigError(err error) error {
	if syntax, ok := errors.AsType[toml.ParseError](err); ok {
		err = fmt.Errorf("line %d, at the key %q: it is not TOML", syntax.Position.Line, syntax.LastKey)
	}
	return fmt.Errorf(
		"read the configuration file of Temporal's clients (TEMPORAL_CONFIG_FILE, else temporal.toml in the user's folder): %w",
		err,
	)
}

// readAPIKey reads the file for each request, so that a new key needs no restart.
func (f *Flags) readAPIKey(context.Context) (string, error) {
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

// newTLSSettings returns the settings of TLS, including the flags; nil without TLS. A flag for a file or for the server
// name enables TLS, even if the environment or the configuration file disables TLS. --temporal-tls has precedence over
// all other settings.
func (f *Flags) newTLSSettings() *tlsSettings {
	var given envconfig.ClientConfigTLS
	on := f.profile.APIKey != "" || f.apiKeyFile != ""
	if f.profile.TLS != nil {
		given, on = *f.profile.TLS, !f.profile.TLS.Disabled
	}
	byFlag := tlsFiles{given.ClientCertPath, given.ClientKeyPath, given.ServerCACertPath} != f.tlsFiles ||
		given.ServerName != f.tlsServerName
	if on = on || byFlag; f.isTLSEnabled != nil {
		on = *f.isTLSEnabled
	}
	if !on {
		return nil
	}
	s := &tlsSettings{
		files: f.tlsFiles, serverName: f.tlsServerName, skipsVerification: given.DisableHostVerification,
		certificate: given.ClientCertData, key: given.ClientKeyData, caCertificate: given.ServerCACertData,
	}
	if f.tlsFiles.certificatePath != given.ClientCertPath || f.tlsFiles.keyPath != given.ClientKeyPath {
		s.certificate, s.key = nil, nil // a flag has precedence over a text in the environment
	}
	if f.tlsFiles.caCertificatePath != given.ServerCACertPath {
		s.caCertificate = nil
	}
	return s
}

// errIncompleteKeyPair means that a certificate was given without its private key, or a private key without its
// certificate.
var errIncompleteKeyPair = errors.New(
	"the certificate that Temporal demands and its private key belong together: give both, or neither (--temporal-tls-cert-path, --temporal-tls-key-path)",
)
