package install

import (
	"slices"
	"strings"
	"testing"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
)

// With TLS, the provider has its certificates, the gateway asks it over https and knows its authority.
// cert-manager makes the certificates, by an authority of the chart's or by an issuer of the user's.
func TestTLS(t *testing.T) {
	on := []string{"tls.enabled=true", "gateway.enabled=true"}
	made := slices.Clip(append(on, "tls.certManager.enabled=true"))
	for name, c := range map[string]struct{ values, want, not []string }{
		"off": {[]string{"gateway.enabled=true", "tls.certManager.enabled=true"}, []string{`value: "http://faas-infer.openfaas`}, []string{"tls", "cert-manager", "SSL_CERT_DIR"}},
		"by hand": {on, []string{"--tls=/var/secrets/tls\n", "--instance-tls=/var/secrets/instance-tls\n", "secret: {secretName: faas-infer-tls}\n", "secret: {secretName: faas-infer-instance-tls}\n",
			`value: "https://faas-infer.openfaas.svc.cluster.local:8081/"`, `{name: SSL_CERT_DIR, value: "/etc/ssl/certs:/var/tls"}`, "secret: {secretName: faas-infer-tls, items: [{key: ca.crt, path: ca.crt}]}"},
			[]string{"cert-manager.io"}},
		"the provider alone": {append(on, "tls.instanceSecretName=", "tls.secretName=mine", "tls.certManager.enabled=true"), []string{"--tls=", "secretName: mine}", "name: mine\n"}, []string{"instance-tls", "instance.faas-infer"}},
		"with NATS":          {append(on, "nats.url=tls://n", "nats.tlsSecret=q"), []string{`value: "/etc/ssl/certs:/var/nats-tls:/var/tls"`}, nil},
		"the bundled NATS": {append(on, "nats.enabled=true", "tls.natsSecretName=mine"), []string{"--nats=tls://nats.openfaas.svc.cluster.local:4222\n", "--nats-tls=/var/secrets/nats-tls\n",
			`value: "/etc/ssl/certs:/var/nats-tls:/var/tls"`, "secret: {secretName: mine}\n", "secret: {secretName: mine, items: [{key: ca.crt, path: ca.crt}]}\n",
			"secret: {secretName: mine, optional: false, items: [{key: ca.crt, path: ca.crt}]}\n", "cert_file: /etc/nats-tls/tls.crt\n", "mountPath: /etc/nats-tls", "reload=1"}, nil},
		"the bundled NATS without": {append(on, "nats.enabled=true"), []string{"--nats=nats://nats.", `value: "/etc/ssl/certs:/var/tls"`}, []string{"nats-tls", "cert_file", "reload=1"}},
		"its certificate":          {append(made, "nats.enabled=true"), []string{"secretName: faas-infer-nats-tls\n", "secret: {secretName: faas-infer-nats-tls}\n", "    - nats.openfaas.svc.cluster.local\n", "usages: [digital signature, server auth]\n"}, nil},
		"an authority of its own": {made, []string{"selfSigned: {}", "isCA: true", "    - faas-infer.openfaas.svc.cluster.local\n", "    - provider.faas-infer\n", "dnsNames: [instance.faas-infer]\n",
			"issuerRef:\n    group: cert-manager.io\n    kind: Issuer\n    name: faas-infer-ca\n"}, nil},
		"an issuer": {append(made, "tls.certManager.issuerRef.name=corp"),
			[]string{"issuerRef:\n    group: cert-manager.io\n    kind: ClusterIssuer\n    name: corp\n"}, []string{"selfSigned", "isCA", "kind: Issuer"}},
	} {
		text := rendered(t, c.values...)
		for _, want := range c.want {
			if !strings.Contains(text, want) {
				t.Errorf("%s: there is no %s", name, want)
			}
		}
		for _, not := range c.not {
			if strings.Contains(text, not) {
				t.Errorf("%s: there is %s", name, not)
			}
		}
		for key, o := range read(t, text) {
			if o.GetKind() != "Certificate" {
				continue
			}
			// What the provider mounts is what cert-manager makes.
			secret, _, _ := metav1.NestedString(o.Object, "spec", "secretName")
			if ca, _, _ := metav1.NestedBool(o.Object, "spec", "isCA"); !ca && !strings.Contains(text, "secret: {secretName: "+secret+"}") {
				t.Errorf("%s: nobody mounts the secret of %s", name, key)
			}
		}
	}
	checkFlags(t, rendered(t, append(made, "nats.enabled=true")...), 10)
	for value, want := range map[string]string{
		"tls.enable=true": "enable", "tls.secretName=": "/tls/secretName", "tls.instanceSecretName=A_b": "/tls/instanceSecretName", "tls.natsSecretName=A_b": "/tls/natsSecretName",
		"tls.certManager.issuerRef.kind=": "/tls/certManager/issuerRef/kind", "tls.certManager.issuerRef.names=a": "names",
	} {
		if _, err := helm(t, value); err == nil || !strings.Contains(err.Error(), want) {
			t.Errorf("%s: %v does not name %s", value, err, want)
		}
	}
}
