// SPDX-License-Identifier: Apache-2.0
extension WebSocketTarget {
    /// Reads an absolute URL.
    static func read(_ text: Substring, _ use: Use) throws(WebSocketURLFault) -> WebSocketTarget {
        try self.checkCharacters(text)
        guard !text.utf8.contains(UInt8(ascii: "#")) else { throw .fragment }
        guard let colon = self.endOfScheme(text), text[colon...].hasPrefix("://") else { throw .noScheme }
        guard let (isSecure, sharesPort) = self.scheme(text[..<colon], use) else { throw .unknownScheme }
        let target = try self.read(afterScheme: text[colon...].dropFirst(3), isSecure: isSecure, sharesPort: sharesPort)
        guard use != .listener || target.query == nil else { throw .queryOfListener }
        return target
    }

    /// Whether a scheme uses TLS, and whether its port accepts other links too; nil for a scheme that `use` does not
    /// have. Case does not matter (RFC 3986, section 3.1).
    private static func scheme(_ text: Substring, _ use: Use) -> (isSecure: Bool, sharesPort: Bool)? {
        switch (text.lowercased(), use) {
        case ("ws", _), ("http", .request): (false, false)
        case ("wss", _), ("https", .request): (true, false)
        case ("tcp+ws", .listener): (false, true)
        case ("tcp+wss", .listener): (true, true)
        default: nil
        }
    }

    /// Reads the part after `://`, whose characters have been checked.
    private static func read(
        afterScheme text: Substring,
        isSecure: Bool,
        sharesPort: Bool = false
    ) throws(WebSocketURLFault) -> WebSocketTarget {
        let end = text.firstIndex { $0 == "/" || $0 == "?" } ?? text.endIndex
        let authority = try HostAndPort(text[..<end])
        let (path, query) = self.pathAndQuery(text[end...])
        return WebSocketTarget(
            isSecure: isSecure,
            sharesPort: sharesPort,
            authority: authority,
            path: String(path),
            query: query.map { String($0) }
        )
    }

    /// Splits at the first question mark.
    static func pathAndQuery(_ text: Substring) -> (path: Substring, query: Substring?) {
        guard let mark = text.firstIndex(of: "?") else { return (text, nil) }
        return (text[..<mark], text[mark...].dropFirst())
    }

    /// Checks that all characters are visible ones of ASCII, so that each is one byte and none ends a line or a word.
    static func checkCharacters(_ text: Substring) throws(WebSocketURLFault) {
        for byte in text.utf8 {
            guard byte < 0x80 else { throw .notASCII }
            guard byte > 0x20, byte != 0x7F else { throw .illegalCharacter }
        }
    }

    /// The colon after a scheme, if the text begins with one (RFC 3986, section 3.1).
    private static func endOfScheme(_ text: Substring) -> Substring.Index? {
        guard let colon = text.firstIndex(of: ":"), let first = text.first, first.isLetter else { return nil }
        let isScheme = text[..<colon].allSatisfy { $0.isLetter || $0.isNumber || $0 == "+" || $0 == "-" || $0 == "." }
        return isScheme ? colon : nil
    }
}

extension WebSocketTarget {
    /// Resolves a reference of the header field `Location` (RFC 9110, section 10.2.2), which may be relative to this
    /// target. Its fragment, which HTTP allows there, is dropped.
    package func resolving(_ location: String) throws(OpeningError) -> WebSocketTarget {
        do throws(WebSocketURLFault) {
            return try self.resolved(location.prefix { $0 != "#" })
        } catch {
            throw .invalidLocation(error)
        }
    }

    /// The rules of RFC 3986, section 5.2.2.
    private func resolved(_ reference: Substring) throws(WebSocketURLFault) -> WebSocketTarget {
        try Self.checkCharacters(reference)
        if Self.endOfScheme(reference) != nil {
            let target = try Self.read(reference, .request)
            return target.replacing(path: target.path[...], query: target.query)
        }
        if reference.hasPrefix("//") {
            let target = try Self.read(afterScheme: reference.dropFirst(2), isSecure: self.isSecure)
            return target.replacing(path: target.path[...], query: target.query)
        }
        let (path, query) = Self.pathAndQuery(reference)
        if path.isEmpty {
            return self.replacing(path: self.path[...], query: query.map { String($0) } ?? self.query)
        }
        // A relative path replaces the part after the last slash of ours.
        let folder = self.path[...(self.path.lastIndex(of: "/") ?? self.path.startIndex)]
        return self.replacing(path: path.first == "/" ? path : folder + path, query: query.map { String($0) })
    }

    /// Returns this target with another path, without `.` and `..`, and query.
    private func replacing(path: Substring, query: String?) -> WebSocketTarget {
        WebSocketTarget(self, path: Self.removingDots(path), query: query)
    }

    /// Resolves `.` and `..` in a path that begins with a slash (RFC 3986, section 5.2.4).
    private static func removingDots(_ path: Substring) -> String {
        guard path.utf8.contains(UInt8(ascii: ".")) else { return String(path) }
        var segments: [Substring] = []
        let all = path.dropFirst().split(separator: "/", omittingEmptySubsequences: false)
        for (index, segment) in all.enumerated() {
            switch segment {
            case ".": break
            case "..": _ = segments.popLast()
            default:
                segments.append(segment)
                continue
            }
            // A path that ends in dots names a folder.
            if index == all.count - 1 { segments.append("") }
        }
        return "/" + segments.joined(separator: "/")
    }
}
