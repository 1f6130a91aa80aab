//! TLS, SASL and the authorizer.

use super::keys;

keys! { SECURITY:
    BOOLEAN "allow.everyone.if.no.acl.found" = null, Any, A, Internal,
        "";
    STRING "authorizer.class.name" = "", Any, A, ReadOnly,
        "";
    INT "connection.failed.authentication.delay.ms" = "100", AtLeast(0), A, ReadOnly,
        "";
    LONG "connections.max.reauth.ms" = "0", Any, A, ReadOnly,
        "";
    LONG "delegation.token.expiry.check.interval.ms" = "3600000", AtLeast(1), I, ReadOnly,
        "";
    LONG "delegation.token.expiry.time.ms" = "86400000", AtLeast(1), I, ReadOnly,
        "";
    LONG "delegation.token.max.lifetime.ms" = "604800000", AtLeast(1), I, ReadOnly,
        "";
    PASSWORD "delegation.token.secret.key" = null, Any, I, ReadOnly,
        "";
    CLASS "principal.builder.class" = "org.apache.kafka.common.security.authenticator.DefaultKafkaPrincipalBuilder", Any, I, PerBroker,
        "";
    CLASS "sasl.client.callback.handler.class" = null, Any, I, ReadOnly,
        "";
    LIST "sasl.enabled.mechanisms" = "GSSAPI", Any, A, PerBroker,
        "";
    PASSWORD "sasl.jaas.config" = null, Any, A, PerBroker,
        "";
    STRING "sasl.kerberos.kinit.cmd" = "/usr/bin/kinit", Any, I, PerBroker,
        "";
    LONG "sasl.kerberos.min.time.before.relogin" = "60000", Any, I, PerBroker,
        "";
    LIST "sasl.kerberos.principal.to.local.rules" = "DEFAULT", Any, I, PerBroker,
        "";
    STRING "sasl.kerberos.service.name" = null, Any, I, PerBroker,
        "";
    DOUBLE "sasl.kerberos.ticket.renew.jitter" = "0.05", Any, I, PerBroker,
        "";
    DOUBLE "sasl.kerberos.ticket.renew.window.factor" = "0.8", Any, I, PerBroker,
        "";
    CLASS "sasl.login.callback.handler.class" = null, Any, I, ReadOnly,
        "";
    CLASS "sasl.login.class" = null, Any, I, ReadOnly,
        "";
    INT "sasl.login.connect.timeout.ms" = null, Any, I, ReadOnly,
        "";
    INT "sasl.login.read.timeout.ms" = null, Any, I, ReadOnly,
        "";
    SHORT "sasl.login.refresh.buffer.seconds" = "300", Any, I, PerBroker,
        "";
    SHORT "sasl.login.refresh.min.period.seconds" = "60", Any, I, PerBroker,
        "";
    DOUBLE "sasl.login.refresh.window.factor" = "0.8", Any, I, PerBroker,
        "";
    DOUBLE "sasl.login.refresh.window.jitter" = "0.05", Any, I, PerBroker,
        "";
    LONG "sasl.login.retry.backoff.max.ms" = "10000", Any, I, ReadOnly,
        "";
    LONG "sasl.login.retry.backoff.ms" = "100", Any, I, ReadOnly,
        "";
    STRING "sasl.mechanism.controller.protocol" = "GSSAPI", Any, I, ReadOnly,
        "";
    STRING "sasl.mechanism.inter.broker.protocol" = "GSSAPI", Any, A, PerBroker,
        "";
    BOOLEAN "sasl.oauthbearer.allow.unverified.audience" = "false", Any, I, ReadOnly,
        "";
    BOOLEAN "sasl.oauthbearer.allow.unverified.issuer" = "false", Any, I, ReadOnly,
        "";
    STRING "sasl.oauthbearer.assertion.algorithm" = "RS256", OneOfNoCase(&["ES256", "RS256"]), I, ReadOnly,
        "";
    STRING "sasl.oauthbearer.assertion.claim.aud" = null, Any, I, ReadOnly,
        "";
    INT "sasl.oauthbearer.assertion.claim.exp.seconds" = "300", Range(0, 86400), I, ReadOnly,
        "";
    STRING "sasl.oauthbearer.assertion.claim.iss" = null, Any, I, ReadOnly,
        "";
    BOOLEAN "sasl.oauthbearer.assertion.claim.jti.include" = "false", Any, I, ReadOnly,
        "";
    INT "sasl.oauthbearer.assertion.claim.nbf.seconds" = "60", Range(0, 3600), I, ReadOnly,
        "";
    STRING "sasl.oauthbearer.assertion.claim.sub" = null, Any, I, ReadOnly,
        "";
    STRING "sasl.oauthbearer.assertion.file" = null, Any, I, ReadOnly,
        "";
    STRING "sasl.oauthbearer.assertion.private.key.file" = null, Any, I, ReadOnly,
        "";
    PASSWORD "sasl.oauthbearer.assertion.private.key.passphrase" = null, Any, I, ReadOnly,
        "";
    STRING "sasl.oauthbearer.assertion.template.file" = null, Any, I, ReadOnly,
        "";
    STRING "sasl.oauthbearer.client.credentials.client.id" = null, Any, I, ReadOnly,
        "";
    PASSWORD "sasl.oauthbearer.client.credentials.client.secret" = null, Any, I, ReadOnly,
        "";
    INT "sasl.oauthbearer.clock.skew.seconds" = "30", Any, I, ReadOnly,
        "";
    LIST "sasl.oauthbearer.expected.audience" = "", Any, I, ReadOnly,
        "";
    STRING "sasl.oauthbearer.expected.issuer" = null, Any, I, ReadOnly,
        "";
    LONG "sasl.oauthbearer.jwks.endpoint.refresh.ms" = "3600000", Any, I, ReadOnly,
        "";
    LONG "sasl.oauthbearer.jwks.endpoint.retry.backoff.max.ms" = "10000", Any, I, ReadOnly,
        "";
    LONG "sasl.oauthbearer.jwks.endpoint.retry.backoff.ms" = "100", Any, I, ReadOnly,
        "";
    STRING "sasl.oauthbearer.jwks.endpoint.url" = null, Any, I, ReadOnly,
        "";
    CLASS "sasl.oauthbearer.jwt.retriever.class" = "org.apache.kafka.common.security.oauthbearer.DefaultJwtRetriever", Any, I, ReadOnly,
        "";
    CLASS "sasl.oauthbearer.jwt.validator.class" = "org.apache.kafka.common.security.oauthbearer.DefaultJwtValidator", Any, I, ReadOnly,
        "";
    STRING "sasl.oauthbearer.scope" = null, Any, I, ReadOnly,
        "";
    STRING "sasl.oauthbearer.scope.claim.name" = "scope", Any, I, ReadOnly,
        "";
    STRING "sasl.oauthbearer.sub.claim.name" = "sub", Any, I, ReadOnly,
        "";
    STRING "sasl.oauthbearer.token.endpoint.url" = null, Any, I, ReadOnly,
        "";
    CLASS "sasl.server.callback.handler.class" = null, Any, I, ReadOnly,
        "";
    INT "sasl.server.max.receive.size" = "524288", Any, A, ReadOnly,
        "";
    STRING "security.inter.broker.protocol" = "PLAINTEXT", OneOf(&["PLAINTEXT", "SSL", "SASL_PLAINTEXT", "SASL_SSL"]), Y, ReadOnly,
        "";
    STRING "security.providers" = null, Any, I, ReadOnly,
        "";
    BOOLEAN "ssl.allow.dn.changes" = "false", Any, I, ReadOnly,
        "";
    BOOLEAN "ssl.allow.san.changes" = "false", Any, I, ReadOnly,
        "";
    LIST "ssl.cipher.suites" = "", Any, A, PerBroker,
        "";
    STRING "ssl.client.auth" = "none", OneOf(&["required", "requested", "none"]), A, PerBroker,
        "";
    LIST "ssl.enabled.protocols" = "TLSv1.2,TLSv1.3", Any, A, PerBroker,
        "";
    STRING "ssl.endpoint.identification.algorithm" = "https", Any, A, PerBroker,
        "";
    CLASS "ssl.engine.factory.class" = null, Any, I, PerBroker,
        "";
    PASSWORD "ssl.key.password" = null, Any, A, PerBroker,
        "";
    STRING "ssl.keymanager.algorithm" = "SunX509", Any, I, PerBroker,
        "";
    PASSWORD "ssl.keystore.certificate.chain" = null, Any, A, PerBroker,
        "";
    PASSWORD "ssl.keystore.key" = null, Any, A, PerBroker,
        "";
    STRING "ssl.keystore.location" = null, Any, A, PerBroker,
        "";
    PASSWORD "ssl.keystore.password" = null, Any, A, PerBroker,
        "";
    STRING "ssl.keystore.type" = "JKS", Any, A, PerBroker,
        "";
    STRING "ssl.principal.mapping.rules" = "DEFAULT", Any, A, ReadOnly,
        "";
    STRING "ssl.protocol" = "TLSv1.3", Any, A, PerBroker,
        "";
    STRING "ssl.provider" = null, Any, I, PerBroker,
        "";
    STRING "ssl.secure.random.implementation" = null, Any, I, PerBroker,
        "";
    STRING "ssl.trustmanager.algorithm" = "PKIX", Any, I, PerBroker,
        "";
    PASSWORD "ssl.truststore.certificates" = null, Any, A, PerBroker,
        "";
    STRING "ssl.truststore.location" = null, Any, A, PerBroker,
        "";
    PASSWORD "ssl.truststore.password" = null, Any, A, PerBroker,
        "";
    STRING "ssl.truststore.type" = "JKS", Any, A, PerBroker,
        "";
    STRING "super.users" = null, Any, A, Internal,
        "";
}
