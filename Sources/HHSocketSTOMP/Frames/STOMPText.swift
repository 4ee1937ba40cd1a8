// SPDX-License-Identifier: Apache-2.0
/// Text of a peer in messages and logs: short, printable, and on one line.
enum STOMPText {
    static let longest = 80

    /// Returns the bytes as text in which controls are escaped, shortened to the first 80 bytes.
    static func shown(_ bytes: some Collection<UInt8>) -> String {
        var shown = ""
        for scalar in String(decoding: bytes.prefix(self.longest), as: UTF8.self).unicodeScalars {
            switch scalar.properties.generalCategory {
            case .control, .format, .lineSeparator, .paragraphSeparator, .unassigned, .privateUse, .surrogate:
                shown += scalar.escaped(asASCII: true)
            default:
                shown += String(scalar)
            }
        }
        return bytes.count > self.longest ? shown + "…" : shown
    }

    /// Returns a header line as text, without the value of one that is secret.
    static func shownLine(_ line: UnsafeRawBufferPointer) -> String {
        guard let colon = line.firstIndex(of: UInt8(ascii: ":")) else { return self.shown(line) }
        let name = line[..<colon]
        return self.isSecret(name) ? "\(self.shown(name)):…" : self.shown(line)
    }

    /// Whether the value of such a header is shown nowhere.
    static func isSecret(_ name: some Collection<UInt8>) -> Bool {
        name.elementsEqual("passcode".utf8) || name.elementsEqual("login".utf8)
    }
}
