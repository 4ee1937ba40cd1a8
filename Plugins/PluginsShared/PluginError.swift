/// What keeps a plugin from its work, as SwiftPM prints it.
struct PluginError: Error, CustomStringConvertible {
    var description: String

    init(_ description: String) {
        self.description = description
    }
}
