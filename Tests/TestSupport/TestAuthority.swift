import Crypto
import Foundation
import HHSocket
import SwiftASN1
import X509

/// A certificate authority for one test.
package struct TestAuthority: Sendable {
    /// A certificate and its key, as PEM.
    package struct Issued: Sendable {
        package var certificatePEM: String
        package var keyPEM: String

        /// The certificate in DER, in base64.
        package var certificateBase64: String {
            self.certificatePEM.split(separator: "\n").filter { !$0.hasPrefix("-----") }.joined()
        }
        package var identity: TLSIdentity { TLSIdentity(certificatePEM: self.certificatePEM, keyPEM: self.keyPEM) }
    }

    private let name: DistinguishedName
    private let key = Certificate.PrivateKey(P256.Signing.PrivateKey())
    /// The authority's own certificate.
    package let pem: String

    package var trust: TLSTrust { .pem(self.pem) }

    package init(_ commonName: String = "test authority") throws {
        let name = try DistinguishedName { CommonName(commonName) }
        self.name = name
        let extensions = try Certificate.Extensions {
            Critical(BasicConstraints.isCertificateAuthority(maxPathLength: nil))
            Critical(KeyUsage(keyCertSign: true, cRLSign: true))
        }
        self.pem = try Self.certificate(
            subject: name,
            of: self.key.publicKey,
            validFor: Self.yesterdayToTomorrow,
            extensions,
            issuer: name,
            signedBy: self.key
        )
    }

    /// Two days around now: certificates of a day are in use, clocks are not that wrong.
    package static var yesterdayToTomorrow: ClosedRange<Date> {
        Date(timeIntervalSinceNow: -86_400)...Date(timeIntervalSinceNow: 86_400)
    }

    /// Two days that are over.
    package static var lastWeek: ClosedRange<Date> {
        Date(timeIntervalSinceNow: -7 * 86_400)...Date(timeIntervalSinceNow: -5 * 86_400)
    }

    /// A certificate for a server of these names and IPv4 addresses.
    package func server(
        names: [String] = ["localhost"],
        addresses: [[UInt8]] = [[127, 0, 0, 1]],
        validFor dates: ClosedRange<Date> = Self.yesterdayToTomorrow,
        key: P256.Signing.PrivateKey = P256.Signing.PrivateKey()
    ) throws -> Issued {
        let alternatives =
            names.map { GeneralName.dnsName($0) }
            + addresses.map { GeneralName.ipAddress(ASN1OctetString(contentBytes: $0[...])) }
        return try self.issue("server", key, dates) {
            try ExtendedKeyUsage([.serverAuth])
            SubjectAlternativeNames(alternatives)
        }
    }

    /// A certificate for a client.
    package func client(validFor dates: ClosedRange<Date> = Self.yesterdayToTomorrow) throws -> Issued {
        try self.issue("client", P256.Signing.PrivateKey(), dates) { try ExtendedKeyUsage([.clientAuth]) }
    }

    private func issue(
        _ commonName: String,
        _ key: P256.Signing.PrivateKey,
        _ dates: ClosedRange<Date>,
        @ExtensionsBuilder _ extensions: () throws -> Result<Certificate.Extensions, any Error>
    ) throws -> Issued {
        let key = Certificate.PrivateKey(key)
        let all = try Certificate.Extensions {
            Critical(BasicConstraints.notCertificateAuthority)
            try extensions().get()
        }
        let certificate = try Self.certificate(
            subject: try DistinguishedName { CommonName(commonName) },
            of: key.publicKey,
            validFor: dates,
            all,
            issuer: self.name,
            signedBy: self.key
        )
        return Issued(certificatePEM: certificate, keyPEM: try key.serializeAsPEM().pemString)
    }

    private static func certificate(
        subject: DistinguishedName,
        of key: Certificate.PublicKey,
        validFor dates: ClosedRange<Date>,
        _ extensions: Certificate.Extensions,
        issuer: DistinguishedName,
        signedBy issuerKey: Certificate.PrivateKey
    ) throws -> String {
        try Certificate(
            version: .v3,
            serialNumber: Certificate.SerialNumber(),
            publicKey: key,
            notValidBefore: dates.lowerBound,
            notValidAfter: dates.upperBound,
            issuer: issuer,
            subject: subject,
            signatureAlgorithm: .ecdsaWithSHA256,
            extensions: extensions,
            issuerPrivateKey: issuerKey
        ).serializeAsPEM().pemString
    }
}
