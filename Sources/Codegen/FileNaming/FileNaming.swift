// SPDX-License-Identifier: Apache-2.0
/// The naming of Swift files, such as that for `zoo/animal.proto`. The generator and the SwiftPM plugins share this
/// file.
enum FileNaming: String, CaseIterable {
    case fullPath = "FullPath"
    case pathToUnderscores = "PathToUnderscores"
    case dropPath = "DropPath"

    /// The name of the Swift file for a `.proto`.
    func outputName(of file: String) -> String {
        let base = file.hasSuffix(".proto") ? String(file.dropLast(".proto".count)) : file
        let name =
            switch self {
            case .fullPath: base
            case .pathToUnderscores: String(base.map { $0 == "/" ? "_" : $0 })
            case .dropPath: base.split(separator: "/").last.map(String.init) ?? base
            }
        return "\(name).hhsocket.swift"
    }
}
