package provider_test

import (
	"encoding/base64"
	"net/url"
	"testing"

	"github.com/stretchr/testify/assert"

	"millwright/provider"
)

// A token in a Secret may end with a line break. A driver sends the token without the line break, so Redact must also
// find the escaped forms of the token without the line break.
func TestRedactFindsATokenWithALineBreak(t *testing.T) {
	t.Parallel()
	const token = "a/short+token?"
	secret := provider.Secret{"token": []byte(token + "\n")}
	for _, form := range []string{token, url.QueryEscape(token), base64.StdEncoding.EncodeToString([]byte(token))} {
		assert.NotContains(t, secret.Redact("refused: "+form+"."), form)
	}
	assert.Equal(
		t,
		"refused: [redacted].",
		provider.Secret{"pin": []byte("123456\n")}.Redact("refused: 123456."),
		"shorter than a line",
	)
}
