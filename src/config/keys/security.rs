//! TLS, SASL and the authorizer.

use super::keys;

keys! { SECURITY:
    BOOLEAN "allow.everyone.if.no.acl.found" = null, Any, A, Internal,
        "Whether a resource without rules is open to everyone.";
    STRING "authorizer.class.name" = "", Any, A, ReadOnly,
        "Authorizer that decides who may do what; empty for none.";
    INT "connection.failed.authentication.delay.ms" = "100", AtLeast(0), A, ReadOnly,
        "How long a connection that failed to authenticate is held before it is closed.";
    LONG "connections.max.reauth.ms" = "0", Any, A, ReadOnly,
        "Time after which an authenticated connection has to authenticate again; 0 for never.";
    LONG "delegation.token.expiry.check.interval.ms" = "3600000", AtLeast(1), I, ReadOnly,
        "How often delegation tokens that expired are looked for.";
    LONG "delegation.token.expiry.time.ms" = "86400000", AtLeast(1), I, ReadOnly,
        "Time after which a delegation token has to be renewed.";
    LONG "delegation.token.max.lifetime.ms" = "604800000", AtLeast(1), I, ReadOnly,
        "Time after which a delegation token cannot be renewed any more.";
    PASSWORD "delegation.token.secret.key" = null, Any, I, ReadOnly,
        "Secret that delegation tokens are signed with.";
    CLASS "principal.builder.class" = "org.apache.kafka.common.security.authenticator.DefaultKafkaPrincipalBuilder", Any, I, PerBroker,
        "Java class that names the principal of a connection; only Kafka's own rule is known here.";
    CLASS "sasl.client.callback.handler.class" = null, Any, I, ReadOnly,
        "Java class that answers SASL's questions for connections to other brokers.";
    LIST "sasl.enabled.mechanisms" = "GSSAPI", Any, A, PerBroker,
        "SASL mechanisms that clients may use.";
    PASSWORD "sasl.jaas.config" = null, Any, A, PerBroker,
        "Login module and users of SASL, in JAAS form.";
    STRING "sasl.kerberos.kinit.cmd" = "/usr/bin/kinit", Any, I, PerBroker,
        "Path of Kerberos' kinit.";
    LONG "sasl.kerberos.min.time.before.relogin" = "60000", Any, I, PerBroker,
        "Shortest time between two attempts to refresh a Kerberos ticket.";
    LIST "sasl.kerberos.principal.to.local.rules" = "DEFAULT", Any, I, PerBroker,
        "Rules that turn Kerberos principals into short names.";
    STRING "sasl.kerberos.service.name" = null, Any, I, PerBroker,
        "Kerberos principal that brokers run as.";
    DOUBLE "sasl.kerberos.ticket.renew.jitter" = "0.05", Any, I, PerBroker,
        "Random part of the time at which Kerberos tickets are renewed.";
    DOUBLE "sasl.kerberos.ticket.renew.window.factor" = "0.8", Any, I, PerBroker,
        "Part of a Kerberos ticket's life after which it is renewed.";
    CLASS "sasl.login.callback.handler.class" = null, Any, I, ReadOnly,
        "Java class that answers the questions of SASL logins.";
    CLASS "sasl.login.class" = null, Any, I, ReadOnly,
        "Java class that logs in.";
    INT "sasl.login.connect.timeout.ms" = null, Any, I, ReadOnly,
        "Timeout of connections to an OAuth provider.";
    INT "sasl.login.read.timeout.ms" = null, Any, I, ReadOnly,
        "Timeout of answers of an OAuth provider.";
    SHORT "sasl.login.refresh.buffer.seconds" = "300", Any, I, PerBroker,
        "Time that is kept between the refresh of a credential and its end.";
    SHORT "sasl.login.refresh.min.period.seconds" = "60", Any, I, PerBroker,
        "Shortest time between two refreshes of a credential.";
    DOUBLE "sasl.login.refresh.window.factor" = "0.8", Any, I, PerBroker,
        "Part of a credential's life after which it is refreshed.";
    DOUBLE "sasl.login.refresh.window.jitter" = "0.05", Any, I, PerBroker,
        "Random part of the time at which credentials are refreshed.";
    LONG "sasl.login.retry.backoff.max.ms" = "10000", Any, I, ReadOnly,
        "Longest pause between attempts to reach an OAuth provider.";
    LONG "sasl.login.retry.backoff.ms" = "100", Any, I, ReadOnly,
        "First pause between attempts to reach an OAuth provider.";
    STRING "sasl.mechanism.controller.protocol" = "GSSAPI", Any, I, ReadOnly,
        "SASL mechanism between brokers and Kafka's controllers.";
    STRING "sasl.mechanism.inter.broker.protocol" = "GSSAPI", Any, A, PerBroker,
        "SASL mechanism between brokers.";
    BOOLEAN "sasl.oauthbearer.allow.unverified.audience" = "false", Any, I, ReadOnly,
        "Whether OAuth tokens are taken for whatever audience they were made.";
    BOOLEAN "sasl.oauthbearer.allow.unverified.issuer" = "false", Any, I, ReadOnly,
        "Whether OAuth tokens are taken from whatever issuer made them.";
    STRING "sasl.oauthbearer.assertion.algorithm" = "RS256", OneOfNoCase(&["ES256", "RS256"]), I, ReadOnly,
        "Algorithm that OAuth assertions are signed with.";
    STRING "sasl.oauthbearer.assertion.claim.aud" = null, Any, I, ReadOnly,
        "Audience of OAuth assertions.";
    INT "sasl.oauthbearer.assertion.claim.exp.seconds" = "300", Range(0, 86400), I, ReadOnly,
        "Life of OAuth assertions.";
    STRING "sasl.oauthbearer.assertion.claim.iss" = null, Any, I, ReadOnly,
        "Issuer of OAuth assertions.";
    BOOLEAN "sasl.oauthbearer.assertion.claim.jti.include" = "false", Any, I, ReadOnly,
        "Whether OAuth assertions carry an id of their own.";
    INT "sasl.oauthbearer.assertion.claim.nbf.seconds" = "60", Range(0, 3600), I, ReadOnly,
        "How far back OAuth assertions are valid.";
    STRING "sasl.oauthbearer.assertion.claim.sub" = null, Any, I, ReadOnly,
        "Subject of OAuth assertions.";
    STRING "sasl.oauthbearer.assertion.file" = null, Any, I, ReadOnly,
        "File with a ready OAuth assertion.";
    STRING "sasl.oauthbearer.assertion.private.key.file" = null, Any, I, ReadOnly,
        "File with the key that OAuth assertions are signed with.";
    PASSWORD "sasl.oauthbearer.assertion.private.key.passphrase" = null, Any, I, ReadOnly,
        "Passphrase of that key.";
    STRING "sasl.oauthbearer.assertion.template.file" = null, Any, I, ReadOnly,
        "File with the fixed part of OAuth assertions.";
    STRING "sasl.oauthbearer.client.credentials.client.id" = null, Any, I, ReadOnly,
        "Id by which the broker logs in at an OAuth provider.";
    PASSWORD "sasl.oauthbearer.client.credentials.client.secret" = null, Any, I, ReadOnly,
        "Secret by which the broker logs in at an OAuth provider.";
    INT "sasl.oauthbearer.clock.skew.seconds" = "30", Any, I, ReadOnly,
        "Difference of clocks that OAuth tokens may show.";
    LIST "sasl.oauthbearer.expected.audience" = "", Any, I, ReadOnly,
        "Audiences that OAuth tokens must name one of.";
    STRING "sasl.oauthbearer.expected.issuer" = null, Any, I, ReadOnly,
        "Issuer that OAuth tokens must name.";
    LONG "sasl.oauthbearer.jwks.endpoint.refresh.ms" = "3600000", Any, I, ReadOnly,
        "How often the keys of an OAuth provider are read again.";
    LONG "sasl.oauthbearer.jwks.endpoint.retry.backoff.max.ms" = "10000", Any, I, ReadOnly,
        "Longest pause between attempts to read the keys of an OAuth provider.";
    LONG "sasl.oauthbearer.jwks.endpoint.retry.backoff.ms" = "100", Any, I, ReadOnly,
        "First pause between attempts to read the keys of an OAuth provider.";
    STRING "sasl.oauthbearer.jwks.endpoint.url" = null, Any, I, ReadOnly,
        "Where the keys of an OAuth provider are.";
    CLASS "sasl.oauthbearer.jwt.retriever.class" = "org.apache.kafka.common.security.oauthbearer.DefaultJwtRetriever", Any, I, ReadOnly,
        "Java class that fetches OAuth tokens.";
    CLASS "sasl.oauthbearer.jwt.validator.class" = "org.apache.kafka.common.security.oauthbearer.DefaultJwtValidator", Any, I, ReadOnly,
        "Java class that checks OAuth tokens.";
    STRING "sasl.oauthbearer.scope" = null, Any, I, ReadOnly,
        "Scope that the broker asks for at an OAuth provider.";
    STRING "sasl.oauthbearer.scope.claim.name" = "scope", Any, I, ReadOnly,
        "Claim of an OAuth token that holds its scope.";
    STRING "sasl.oauthbearer.sub.claim.name" = "sub", Any, I, ReadOnly,
        "Claim of an OAuth token that holds its subject.";
    STRING "sasl.oauthbearer.token.endpoint.url" = null, Any, I, ReadOnly,
        "Where an OAuth provider gives out tokens.";
    CLASS "sasl.server.callback.handler.class" = null, Any, I, ReadOnly,
        "Java class that answers SASL's questions for client connections.";
    INT "sasl.server.max.receive.size" = "524288", Any, A, ReadOnly,
        "Largest message of a client that has not authenticated yet.";
    STRING "security.inter.broker.protocol" = "PLAINTEXT", OneOf(&["PLAINTEXT", "SSL", "SASL_PLAINTEXT", "SASL_SSL"]), Y, ReadOnly,
        "Security protocol between brokers, where inter.broker.listener.name is not set.";
    STRING "security.providers" = null, Any, I, ReadOnly,
        "Java security providers; none can be loaded here.";
    BOOLEAN "ssl.allow.dn.changes" = "false", Any, I, ReadOnly,
        "Whether a new certificate may have another distinguished name.";
    BOOLEAN "ssl.allow.san.changes" = "false", Any, I, ReadOnly,
        "Whether a new certificate may have other alternative names.";
    LIST "ssl.cipher.suites" = "", Any, A, PerBroker,
        "Cipher suites that TLS may use; empty for all that are secure.";
    STRING "ssl.client.auth" = "none", OneOf(&["required", "requested", "none"]), A, PerBroker,
        "Whether clients have to show a certificate: required, requested or none.";
    LIST "ssl.enabled.protocols" = "TLSv1.2,TLSv1.3", Any, A, PerBroker,
        "Versions of TLS that are offered.";
    STRING "ssl.endpoint.identification.algorithm" = "https", Any, A, PerBroker,
        "How the name of a server is compared with its certificate; empty for not at all.";
    CLASS "ssl.engine.factory.class" = null, Any, I, PerBroker,
        "Java class that makes TLS engines; none can be loaded here.";
    PASSWORD "ssl.key.password" = null, Any, A, PerBroker,
        "Password of the private key in the key store.";
    STRING "ssl.keymanager.algorithm" = "SunX509", Any, I, PerBroker,
        "Algorithm of Java's key manager.";
    PASSWORD "ssl.keystore.certificate.chain" = null, Any, A, PerBroker,
        "Certificate chain, in PEM form.";
    PASSWORD "ssl.keystore.key" = null, Any, A, PerBroker,
        "Private key, in PEM form.";
    STRING "ssl.keystore.location" = null, Any, A, PerBroker,
        "File of the key store.";
    PASSWORD "ssl.keystore.password" = null, Any, A, PerBroker,
        "Password of the key store.";
    STRING "ssl.keystore.type" = "JKS", Any, A, PerBroker,
        "Format of the key store: JKS, PKCS12 or PEM.";
    STRING "ssl.principal.mapping.rules" = "DEFAULT", Any, A, ReadOnly,
        "Rules that turn the name in a client's certificate into a principal.";
    STRING "ssl.protocol" = "TLSv1.3", Any, A, PerBroker,
        "Version of TLS that is used where both sides can.";
    STRING "ssl.provider" = null, Any, I, PerBroker,
        "Java security provider of TLS.";
    STRING "ssl.secure.random.implementation" = null, Any, I, PerBroker,
        "Java's source of randomness for TLS.";
    STRING "ssl.trustmanager.algorithm" = "PKIX", Any, I, PerBroker,
        "Algorithm of Java's trust manager.";
    PASSWORD "ssl.truststore.certificates" = null, Any, A, PerBroker,
        "Certificates that are trusted, in PEM form.";
    STRING "ssl.truststore.location" = null, Any, A, PerBroker,
        "File of the trust store.";
    PASSWORD "ssl.truststore.password" = null, Any, A, PerBroker,
        "Password of the trust store.";
    STRING "ssl.truststore.type" = "JKS", Any, A, PerBroker,
        "Format of the trust store: JKS, PKCS12 or PEM.";
    STRING "super.users" = null, Any, A, Internal,
        "Principals that may do everything, separated by semicolons.";
}
