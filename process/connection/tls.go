package connection

import (
	"cmp"
	"context"
	"crypto/tls"
	"crypto/x509"
	"fmt"
	"net"
	"os"

	"google.golang.org/grpc/credentials"
)

// files are the paths of PEM files; an empty one means none.
type files struct{ certificate, key, authority string }

// tlsSettings are the settings of TLS. Each PEM text is given as a file, as a text, or not at all.
type tlsSettings struct {
	files                       files
	certificate, key, authority []byte
	serverName                  string // empty: the host of the address
	// the server's certificate is not verified: TEMPORAL_TLS_DISABLE_HOST_VERIFICATION
	unverified bool
}

// load reads the files. Its errors name them, and never show what is in them.
func (s *tlsSettings) load() (*tls.Config, error) {
	config := &tls.Config{ServerName: s.serverName, MinVersion: tls.VersionTLS12}
	config.InsecureSkipVerify = s.unverified
	certificate, err := pemOf("certificate", s.files.certificate, s.certificate)
	if err != nil {
		return nil, err
	}
	key, err := pemOf("private key", s.files.key, s.key)
	if err != nil {
		return nil, err
	}
	switch {
	case (certificate == nil) != (key == nil):
		return nil, errHalf
	case certificate != nil:
		pair, err := tls.X509KeyPair(certificate, key)
		if err != nil {
			return nil, fmt.Errorf(
				"use %s with its private key %s for TLS with Temporal: %w",
				where(s.files.certificate),
				where(s.files.key),
				err,
			)
		}
		config.Certificates = []tls.Certificate{pair}
	}
	authority, err := pemOf("CA", s.files.authority, s.authority)
	if err != nil {
		return nil, err
	}
	if authority != nil {
		config.RootCAs = x509.NewCertPool()
		if !config.RootCAs.AppendCertsFromPEM(authority) {
			return nil, fmt.Errorf(
				"use %s as the CA of Temporal's certificate: it has no certificate in PEM",
				where(s.files.authority),
			)
		}
	}
	return config, nil
}

// pemOf returns the text of a file, or the given one; nil if there is neither.
func pemOf(what, path string, text []byte) ([]byte, error) {
	switch {
	case path == "" && len(text) == 0:
		return nil, nil
	case path == "":
		return text, nil
	case len(text) > 0:
		return nil, fmt.Errorf("the %s for TLS with Temporal is given twice, as a file and as a text: give one", what)
	}
	read, err := os.ReadFile(path)
	if err != nil {
		return nil, fmt.Errorf("read the %s for TLS with Temporal: %w", what, err)
	}
	return read, nil
}

func where(path string) string { return cmp.Or(path, "the text in environment or configuration file") }

// reloading are transport credentials that read the files at each handshake. So the next connection uses a renewed
// certificate or a replaced CA. Handshakes are rare: Temporal's server ends a connection after five minutes by default
// (frontend.keepAliveMaxConnectionAge), and the client makes another one.
type reloading struct {
	credentials.TransportCredentials // answers what does not depend on the files
	settings                         *tlsSettings
}

func newReloading(s *tlsSettings) reloading {
	return reloading{credentials.NewTLS(&tls.Config{ServerName: s.serverName, MinVersion: tls.VersionTLS12}), s}
}

// ClientHandshake reads the files and shakes hands with what is in them.
func (r reloading) ClientHandshake(
	ctx context.Context,
	authority string,
	connection net.Conn,
) (net.Conn, credentials.AuthInfo, error) {
	config, err := r.settings.load()
	if err != nil {
		return nil, nil, err
	}
	return credentials.NewTLS(config).ClientHandshake(ctx, authority, connection)
}

// Clone returns the credentials themselves: they hold no state.
func (r reloading) Clone() credentials.TransportCredentials { return r }
