// What editors are told of the decorators, which the transform of this package knows: a
// tsconfig.json includes this file. The compiler does not read it.

/** Makes a class a plugin of the scheduler, whose methods are those that kubewasm/scheduler begins with. */
declare function scheduler(constructor: Function): void;
/** Makes a class an admission plugin, with one of the methods validate, mutate and convert. */
declare function admission(constructor: Function): void;
/** Makes a class a runtime hook, with the method decide. */
declare function hook(constructor: Function): void;
/** Makes a class a plugin of an extension point that kubewasm gen has written. */
declare function service(constructor: Function): void;
/** Marks the class of an extension point in a file that kubewasm gen has written. */
declare function extensionPoint(name: string, schema: string): (constructor: Function) => void;
/** Fills a field from the plugin's configuration, under its own name. */
declare function config(target: any, property: string): void;
/** Fills a field from the plugin's configuration, under another name. */
declare function config(name: string): (target: any, property: string) => void;
