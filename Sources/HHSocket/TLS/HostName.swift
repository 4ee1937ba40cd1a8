// SPDX-License-Identifier: Apache-2.0
import NIOSSL

/// A host name that a certificate must contain (RFC 9525).
///
/// NIOSSL checks names too, but also accepts a certificate for the *address* that it is connected to. An attacker who
/// can forge DNS answers controls an address, and can get a certificate for it from public authorities. So a server
/// reached by name must have a certificate with that name.
struct HostName: Hashable, Sendable {
    private let labels: [Substring]

    /// - Parameter text: With or without a final period.
    init(_ text: String) {
        self.labels = Self.labels(of: text)
    }

    /// The name for the server name indication, which has no final period (RFC 6066, section 3).
    static func indication(of name: String) -> String { String(Self.withoutFinalPeriod(name)) }

    private static func withoutFinalPeriod(_ text: String) -> Substring {
        text.hasSuffix(".") ? text.dropLast() : text[...]
    }

    private static func labels(of text: String) -> [Substring] {
        Self.withoutFinalPeriod(text).lowercased().split(separator: ".", omittingEmptySubsequences: false).map {
            Substring($0)
        }
    }

    /// Whether it is one of the certificate's alternative names. The common name does not count.
    func isNamed(by certificate: NIOSSLCertificate) -> Bool {
        // The underscore means that the symbol may change; the only alternative is our own parser.
        certificate._subjectAlternativeNames().contains { name in
            name.nameType == .dnsName && self.matches(String(decoding: Array(name.contents), as: UTF8.self))
        }
    }

    /// - Parameter pattern: A name, whose first label may be `*` for any one label.
    func matches(_ pattern: String) -> Bool {
        let pattern = Self.labels(of: pattern)
        guard pattern.count == self.labels.count, !pattern.contains("") else { return false }
        // A wildcard for a whole top-level domain is not accepted.
        if pattern[0] == "*", pattern.count > 2 { return pattern.dropFirst() == self.labels.dropFirst() }
        return pattern == self.labels
    }
}
