package provider_test

import (
	"encoding/base64"
	"encoding/json"
	"net/url"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"millwright/provider"
)

// A cloud may quote a request in its encoded form, so Redact must find a Secret's value in each encoding.
func TestRedactFindsEachEncodingOfASecret(t *testing.T) {
	const token, key = `s3cr3t "token" <&> with/odd+letters=`, "-----BEGIN KEY-----\nMIIEvQIBADANBgkqhkiG9w0\nBAQEFAASCBKcwgg\n-----END KEY-----\n"
	secret := provider.Secret{"token": []byte(token), "key": []byte(key)}
	quoted, err := json.Marshal(token)
	require.NoError(t, err)
	for name, form := range map[string]string{
		"plain":                     token,
		"JSON":                      string(quoted),
		"XML, quotes as numbers":    `s3cr3t &#34;token&#34; &lt;&amp;&gt; with/odd+letters=`,
		"XML, quotes as names":      `s3cr3t &quot;token&quot; &lt;&amp;&gt; with/odd+letters=`,
		"XML, quotes as they are":   `s3cr3t "token" &lt;&amp;&gt; with/odd+letters=`,
		"URL, in a query":           url.QueryEscape(token),
		"URL, in a path":            url.PathEscape(token),
		"base64":                    base64.StdEncoding.EncodeToString([]byte(token)),
		"base64 without padding":    base64.RawStdEncoding.EncodeToString([]byte(token)),
		"base64 for URLs":           base64.URLEncoding.EncodeToString([]byte(token)),
		"base64 of user and token":  base64.StdEncoding.EncodeToString([]byte("user:" + token + ":x")),
		"base64, one letter before": base64.RawURLEncoding.EncodeToString([]byte("u" + token + "later")),
		"one line of several":       "MIIEvQIBADANBgkqhkiG9w0",
		"the last line but one":     "BAQEFAASCBKcwgg",
	} {
		t.Run(name, func(t *testing.T) {
			got := secret.Redact("refused: " + form + " is not valid")
			assert.Contains(t, got, "[redacted]")
			for _, part := range []string{form, "s3cr3t", "odd", "MIIE", "BAQE"} {
				assert.NotContains(t, got, part)
			}
		})
	}
	assert.Equal(t, "no line of it", secret.Redact("no line of it"))
}
