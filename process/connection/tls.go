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

// tlsFiles are the paths of PEM files; an empty path means no file.
type tlsFiles struct{ certificatePath, keyPath, caCertificatePath string }

// tlsSettings contains the TLS settings. Each PEM text is given as a file, as a text, or not at all.
type tlsSettings struct {
	files                           tlsFiles
	certificate, key, caCertificate []byte
	serverName                      string // name in the server's certificate; if empty, the host of the address
	// skipsVerification disables the verification of the server's certificate: TEMPORAL_TLS_DISABLE_HOST_VERIFICATION.
	skipsVerification bool
}

// loadTLSConfig reads the files. loadTLSConfig's errors name the files, and never show their content.
func (s *tlsSettings) loadTLSConfig() (*tls.Config, error) {
	config := &tls.Config{ServerName: s.serverName, MinVersion: tls.VersionTLS12}
	config.InsecureSkipVerify = s.skipsVerification
	certificate, err := readPEM("certificate", s.files.certificatePath, s.certificate)
	if err != nil {
		return nil, err
	}
	key, err := readPEM("private key", s.files.keyPath, s.key)
	if err != nil {
		return nil, err
	}
	switch {
	case (certificate == nil) != (key == nil):
		return nil, errIncompleteKeyPair
	case certificate != nil:
		pair, err := tls.X509KeyPair(certificate, key)
		if err != nil {
			return nil, fmt.Errorf(
				"use %s with its private key %s for TLS with Temporal: %w",
				describeSource(s.files.certificatePath),
				describeSource(s.files.keyPath),
				err,
			)
		}
		config.Certificates = []tls.Certificate{pair}
	}
	authority, err := readPEM("CA", s.files.caCertificatePath, s.caCertificate)
	if err != nil {
		return nil, err
	}
	if authority != nil {
		config.RootCAs = x509.NewCertPool()
		if !config.RootCAs.AppendCertsFromPEM(authority) {
			return nil, fmt.Errorf(
				"use %s as the CA of Temporal's certificate: it has no certificate in PEM",
				describeSource(s.files.caCertificatePath),
			)
		}
	}
	return config, nil
}

// readPEM returns the content of the file, or the given text. readPEM returns nil without a file and without a text.
func readPEM(what, path string, text []byte) ([]byte, error) {
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

func describeSource(path string) string {
	return cmp.Or(path, "the text in environment or configuration file")
}

// reloadingCredentials are transport credentials that read the files at each handshake, so that the next connection
// uses a renewed certificate or a replaced CA. Handshakes are rare: Temporal's server closes a connection after five
// minutes by default (frontend.keepAliveMaxConnectionAge), and the client opens another connection.
type reloadingCredentials struct {
	credentials.TransportCredentials // handles the methods that reloadingCredentials does not implement
	settings                         *tlsSettings
}

func newReloadingCredentials(s *tlsSettings) reloadingCredentials {
	return reloadingCredentials{credentials.NewTLS(&tls.Config{ServerName: s.serverName, MinVersion: tls.VersionTLS12}), s}
}

// ClientHandshake reads the files and uses them for the handshake.
func (r reloadingCredentials) ClientHandshake(
	ctx context.Context,
	authority string,
	connection net.Conn,
) (net.Conn, credentials.AuthInfo, error) {
	config, err := r.settings.loadTLSConfig()
	if err != nil {
		return nil, nil, err
	}
	return credentials.NewTLS(config).ClientHandshake(ctx, authority, connection)
}

// Clone returns the credentials themselves: they hold no state.
func (r reloadingCredentials) Clone() credentials.TransportCredentials { return r }
