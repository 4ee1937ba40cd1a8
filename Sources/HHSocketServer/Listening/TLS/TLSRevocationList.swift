// SPDX-License-Identifier: Apache-2.0
import Foundation
import HHSocketLink
import NIOSSL

/// A list of certificates that their authority has revoked (CRL, RFC 5280, section 5), in PEM (`X509 CRL`) or DER.
///
/// It is trusted like the file of an authority: the authority's signature is not verified, so protect the file from
/// being written by others. Partial lists, and lists of changes, are not supported and are rejected when they are read.
public enum TLSRevocationList: Sendable {
    /// A file, given by its path, which is read whenever TLS is set up or reloaded. It may hold several lists in PEM.
    case file(String)
    /// The text of one or more lists in PEM.
    case pem(String)
    /// A list in DER.
    case der([UInt8])

    /// The files that ``load()`` reads.
    var files: [String] {
        if case .file(let path) = self { [path] } else { [] }
    }

    /// - Throws: ``/HHSocket/SocketError`` with code `invalidArgument` that names the file that cannot be read.
    func load() throws(SocketError) -> [RevocationList] {
        let bytes: [UInt8]
        let source: String
        switch self {
        case .pem(let text): (bytes, source) = (Array(text.utf8), "the given bytes")
        case .der(let given): (bytes, source) = (given, "the given bytes")
        case .file(let path):
            source = "the file \(path)"
            do {
                bytes = Array(try Data(contentsOf: URL(fileURLWithPath: path)))
            } catch {
                throw .invalid("cannot read \(source): \(error)", underlying: error)
            }
        }
        let lists = bytes.first == DER.sequence ? [bytes] : Self.blocks(String(decoding: bytes, as: UTF8.self))
        guard !lists.isEmpty else {
            throw .invalid("there is no list of revoked certificates in \(source); it takes PEM (X509 CRL) or DER")
        }
        var loaded: [RevocationList] = []
        for list in lists {
            do throws(DER.Failure) {
                loaded.append(try RevocationList(list))
            } catch {
                throw .invalid("the list of revoked certificates in \(source) cannot be used: \(error.reason)")
            }
        }
        return loaded
    }

    private static func blocks(_ text: String) -> [[UInt8]] {
        var blocks: [[UInt8]] = []
        var base64: String?
        for line in text.split(whereSeparator: \.isNewline) {
            let line = line.trimmingCharacters(in: .whitespaces)
            if line == "-----BEGIN X509 CRL-----" {
                base64 = ""
            } else if line == "-----END X509 CRL-----", let whole = base64 {
                // Invalid Base64 is reported as a list that cannot be read.
                blocks.append(Data(base64Encoded: whole).map { Array($0) } ?? [])
                base64 = nil
            } else {
                base64?.append(line)
            }
        }
        return blocks
    }
}

/// The certificates that an authority has revoked.
struct RevocationList: Sendable {
    /// The authority's name, in DER.
    let issuer: [UInt8]
    /// The time at which the next list is due, in seconds since 1970; nil if the list does not contain it.
    let nextUpdate: Int64?
    /// The numbers in DER.
    let serialNumbers: Set<[UInt8]>

    init(_ bytes: [UInt8]) throws(DER.Failure) {
        var whole = DER(bytes[...])
        var list = DER(try whole.read(DER.sequence, "a list"))
        var content = DER(try list.read(DER.sequence, "its content"))
        _ = try content.readIfNext(DER.integer)
        _ = try content.read(DER.sequence, "its algorithm")
        self.issuer = Array(try content.readWhole(DER.sequence, "its issuer"))
        _ = try content.readTime("its date")
        self.nextUpdate = content.isTimeNext ? try content.readTime("the date of the next list") : nil
        var numbers: Set<[UInt8]> = []
        if let entries = try content.readIfNext(DER.sequence) {
            var entries = DER(entries)
            while !entries.isEmpty {
                var entry = DER(try entries.read(DER.sequence, "an entry"))
                numbers.insert(Array(try entry.read(DER.integer, "a serial number")))
                _ = try entry.readTime("the date of an entry")
                if let extensions = try entry.readIfNext(DER.sequence) { try Self.check(extensions) }
            }
        }
        self.serialNumbers = numbers
        if let tagged = try content.readIfNext(DER.context(0)) {
            var tagged = DER(tagged)
            try Self.check(try tagged.read(DER.sequence, "its extensions"))
        }
    }

    /// A critical extension means that the list is partial, has only changes, or has other issuers' certificates: RFC
    /// 5280 forbids using it then.
    private static func check(_ extensions: ArraySlice<UInt8>) throws(DER.Failure) {
        var extensions = DER(extensions)
        while !extensions.isEmpty {
            var one = DER(try extensions.read(DER.sequence, "an extension"))
            _ = try one.read(DER.objectIdentifier, "an extension's kind")
            if let isCritical = try one.readIfNext(DER.boolean), isCritical.contains(where: { $0 != 0 }) {
                throw DER.Failure(reason: "it has a critical extension, as lists of a part or of changes have")
            }
        }
    }
}

/// The revocations of all authorities, which determine the client certificates that are refused.
struct CertificateRevocations: Sendable {
    private struct Issuer {
        var serialNumbers: Set<[UInt8]> = []
        /// The next update of the newest list; `Int64.max` if the list does not contain it.
        var nextUpdate = Int64.min
    }

    private var issuers: [[UInt8]: Issuer] = [:]

    /// Nil if there are no lists.
    ///
    /// - Throws: ``/HHSocket/SocketError`` with code `invalidArgument`.
    init?(_ lists: [TLSRevocationList]) throws(SocketError) {
        guard !lists.isEmpty else { return nil }
        for list in lists {
            for loaded in try list.load() {
                var issuer = self.issuers[loaded.issuer] ?? Issuer()
                issuer.serialNumbers.formUnion(loaded.serialNumbers)
                issuer.nextUpdate = max(issuer.nextUpdate, loaded.nextUpdate ?? .max)
                self.issuers[loaded.issuer] = issuer
            }
        }
    }

    func refuses(_ certificate: NIOSSLCertificate) -> Bool {
        guard let bytes = try? certificate.toDERBytes() else { return true }
        return self.refuses(bytes, now: Int64(Date().timeIntervalSince1970))
    }

    /// - Parameters:
    ///   - certificate: In DER.
    ///   - now: In seconds since 1970.
    func refuses(_ certificate: [UInt8], now: Int64) -> Bool {
        guard let (issuer, number) = try? Self.names(certificate), let known = self.issuers[issuer] else { return true }
        return known.nextUpdate < now || known.serialNumbers.contains(number)
    }

    /// A certificate's issuer and its serial number.
    private static func names(_ certificate: [UInt8]) throws(DER.Failure) -> (issuer: [UInt8], number: [UInt8]) {
        var whole = DER(certificate[...])
        var outer = DER(try whole.read(DER.sequence, "a certificate"))
        var content = DER(try outer.read(DER.sequence, "its content"))
        _ = try content.readIfNext(DER.context(0))
        let number = Array(try content.read(DER.integer, "its serial number"))
        _ = try content.read(DER.sequence, "its algorithm")
        return (Array(try content.readWhole(DER.sequence, "its issuer")), number)
    }
}
