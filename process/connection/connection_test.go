package connection

import (
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/spf13/pflag"
	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
)

// clearTemporalEnvironment removes Temporal's environment variables of the user who runs the tests.
func clearTemporalEnvironment(t *testing.T) {
	t.Helper()
	for _, variable := range os.Environ() {
		if name, _, _ := strings.Cut(variable, "="); strings.HasPrefix(name, "TEMPORAL_") {
			t.Setenv(name, "") // Setenv restores the variable after the test
			require.NoError(t, os.Unsetenv(name))
		}
	}
	t.Setenv("XDG_CONFIG_HOME", t.TempDir())
}

// writeFile writes a file in a new folder, and returns its path.
func writeFile(t *testing.T, text string) string {
	t.Helper()
	path := filepath.Join(t.TempDir(), "file")
	require.NoError(t, os.WriteFile(path, []byte(text), 0o600))
	return path
}

func parseFlags(t *testing.T, arguments ...string) *Flags {
	t.Helper()
	var f Flags
	set := pflag.NewFlagSet("test", pflag.ContinueOnError)
	f.Register(set)
	require.NoError(t, set.Parse(arguments))
	return &f
}

func TestFlagPrecedence(t *testing.T) {
	clearTemporalEnvironment(t)
	f := parseFlags(t)
	assert.Equal(t, "127.0.0.1:7233", f.Address)
	assert.Equal(t, "millwright", f.Namespace)
	assert.Nil(t, f.newTLSSettings(), "nothing asks for TLS")

	t.Setenv("TEMPORAL_CONFIG_FILE", writeFile(t, `
[profile.default]
address = "file:1"
namespace = "of-file"
[profile.default.tls]
client_cert_path = "/file.crt"
client_key_path = "/file.key"
server_ca_cert_path = "/file-ca.crt"
server_name = "file"
[profile.second]
address = "second:1"
`))
	f = parseFlags(t)
	assert.Equal(t, "file:1", f.Address)
	assert.Equal(t, "of-file", f.Namespace)
	assert.Equal(
		t,
		&tlsSettings{files: tlsFiles{"/file.crt", "/file.key", "/file-ca.crt"}, serverName: "file"},
		f.newTLSSettings(),
	)

	t.Setenv("TEMPORAL_ADDRESS", "environment:1")
	t.Setenv("TEMPORAL_TLS_SERVER_NAME", "environment")
	f = parseFlags(t)
	assert.Equal(t, "environment:1", f.Address)
	assert.Equal(t, "of-file", f.Namespace, "each setting for itself")
	assert.Equal(
		t,
		&tlsSettings{files: tlsFiles{"/file.crt", "/file.key", "/file-ca.crt"}, serverName: "environment"},
		f.newTLSSettings(),
	)

	f = parseFlags(
		t,
		"--temporal-address=flag:1",
		"--temporal-namespace=of-flag",
		"--temporal-tls-cert-path=/flag.crt",
		"--temporal-tls-key-path=/flag.key",
		"--temporal-tls-server-name=flag",
	)
	assert.Equal(t, "flag:1", f.Address)
	assert.Equal(t, "of-flag", f.Namespace)
	assert.Equal(
		t,
		&tlsSettings{files: tlsFiles{"/flag.crt", "/flag.key", "/file-ca.crt"}, serverName: "flag"},
		f.newTLSSettings(),
	)

	assert.Nil(t, parseFlags(t, "--temporal-tls=false").newTLSSettings())

	t.Setenv("TEMPORAL_ADDRESS", "")
	t.Setenv("TEMPORAL_PROFILE", "second")
	assert.Equal(t, "127.0.0.1:7233", parseFlags(t).Address, "an empty variable is a setting, as for Temporal's own tools")
	require.NoError(t, os.Unsetenv("TEMPORAL_ADDRESS"))
	assert.Equal(t, "second:1", parseFlags(t).Address)
}

func TestSettingsThatEnableTLS(t *testing.T) {
	for name, row := range map[string]struct {
		environment map[string]string
		flags       []string
		on          bool
	}{
		"nothing":                              {},
		"the variable":                         {environment: map[string]string{"TEMPORAL_TLS": "true"}, on: true},
		"the variable, off":                    {environment: map[string]string{"TEMPORAL_TLS": "false", "TEMPORAL_API_KEY": "k"}},
		"a variable with a path":               {environment: map[string]string{"TEMPORAL_TLS_SERVER_CA_CERT_PATH": "/ca"}, on: true},
		"an API key in a variable":             {environment: map[string]string{"TEMPORAL_API_KEY": "k"}, on: true},
		"the flag":                             {flags: []string{"--temporal-tls"}, on: true},
		"a flag with an API key":               {flags: []string{"--temporal-api-key-path=/key"}, on: true},
		"a flag with a path":                   {flags: []string{"--temporal-tls-ca-path=/ca"}, on: true},
		"a flag with a path, the variable off": {environment: map[string]string{"TEMPORAL_TLS": "false"}, flags: []string{"--temporal-tls-ca-path=/ca"}, on: true},
		"the flag off, the variable on":        {environment: map[string]string{"TEMPORAL_TLS": "true"}, flags: []string{"--temporal-tls=false"}},
		"the flag off beside a path":           {flags: []string{"--temporal-tls=false", "--temporal-tls-ca-path=/ca"}},
	} {
		t.Run(name, func(t *testing.T) {
			clearTemporalEnvironment(t)
			for key, value := range row.environment {
				t.Setenv(key, value)
			}
			assert.Equal(t, row.on, parseFlags(t, row.flags...).newTLSSettings() != nil)
		})
	}
}

func TestSettingErrorsShowNoSecret(t *testing.T) {
	const secret = "canary-of-the-api-key"
	key := writeFile(t, secret)
	for name, row := range map[string]struct {
		file        string
		environment map[string]string
		flags       []string
		says        string
	}{
		"a file that is not TOML":     {file: "[profile.default]\napi_key = " + secret, says: `line 2, at the key "profile.default.api_key": it is not TOML`},
		"a profile that is not there": {environment: map[string]string{"TEMPORAL_PROFILE": "absent"}, says: "unable to find profile absent"},
		"a certificate without key":   {flags: []string{"--temporal-tls-cert-path=" + key}, says: "belong together"},
		"no such file":                {flags: []string{"--temporal-tls-ca-path=/absent"}, says: "read the CA for TLS with Temporal: open /absent"},
		"a CA that is none":           {flags: []string{"--temporal-tls-ca-path=" + key}, says: "has no certificate in PEM"},
		"a certificate that is none":  {flags: []string{"--temporal-tls-cert-path=" + key, "--temporal-tls-key-path=" + key}, says: "use " + key + " with its private key"},
		"twice":                       {environment: map[string]string{"TEMPORAL_TLS_SERVER_CA_CERT_PATH": key, "TEMPORAL_TLS_SERVER_CA_CERT_DATA": secret}, says: "given twice"},
		"no file of the API key":      {flags: []string{"--temporal-api-key-path=/absent"}, says: "--temporal-api-key-path: open /absent"},
		"an empty API key":            {flags: []string{"--temporal-api-key-path=" + writeFile(t, "\n")}, says: "is empty"},
		"no file of payload keys":     {flags: []string{"--payload-keys-path=/absent"}, says: "read the keys of payloads: open /absent"},
	} {
		t.Run(name, func(t *testing.T) {
			clearTemporalEnvironment(t)
			for key, value := range row.environment {
				t.Setenv(key, value)
			}
			if row.file != "" {
				t.Setenv("TEMPORAL_CONFIG_FILE", writeFile(t, row.file))
			}
			_, err := parseFlags(t, row.flags...).ClientOptions()
			require.ErrorContains(t, err, row.says)
			assert.NotContains(t, err.Error(), secret)
		})
	}
}
