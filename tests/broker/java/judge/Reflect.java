package judge;

import java.lang.reflect.Field;
import java.lang.reflect.InvocationTargetException;
import java.lang.reflect.Method;

/** Reaches what differs between versions by asking whether it is there, never by comparing version numbers. */
final class Reflect {
    private Reflect() {
    }

    /** The method of that name and arity, or null; inherited and private ones included. */
    static Method method(Class<?> type, String name, int arity) {
        for (Class<?> at = type; at != null; at = at.getSuperclass()) {
            for (Method method : at.getDeclaredMethods()) {
                if (method.getName().equals(name) && method.getParameterCount() == arity && !method.isBridge()) {
                    method.setAccessible(true);
                    return method;
                }
            }
        }
        return null;
    }

    static boolean has(Object target, String name, int arity) {
        return method(target.getClass(), name, arity) != null;
    }

    static Object call(Object target, String name, Object... arguments) throws Exception {
        Method method = method(target.getClass(), name, arguments.length);
        if (method == null) {
            throw new NoSuchMethodException(target.getClass().getName() + "#" + name + "/" + arguments.length);
        }
        return invoke(method, target, arguments);
    }

    static Object invoke(Method method, Object target, Object... arguments) throws Exception {
        try {
            return method.invoke(target, arguments);
        } catch (InvocationTargetException e) {
            if (e.getCause() instanceof Exception) {
                throw (Exception) e.getCause();
            }
            throw e;
        }
    }

    static Class<?> firstClass(String... names) throws ClassNotFoundException {
        for (String name : names) {
            try {
                return Class.forName(name);
            } catch (ClassNotFoundException e) {
                continue;
            }
        }
        throw new ClassNotFoundException(String.join(", ", names));
    }

    static boolean hasField(Object target, String name) {
        try {
            declaredField(target.getClass(), name);
            return true;
        } catch (NoSuchFieldException e) {
            return false;
        }
    }

    static Object field(Object target, String name) throws Exception {
        return declaredField(target.getClass(), name).get(target);
    }

    static void setField(Object target, String name, Object value) throws Exception {
        declaredField(target.getClass(), name).set(target, value);
    }

    private static Field declaredField(Class<?> type, String name) throws NoSuchFieldException {
        for (Class<?> at = type; at != null; at = at.getSuperclass()) {
            try {
                Field field = at.getDeclaredField(name);
                field.setAccessible(true);
                return field;
            } catch (NoSuchFieldException e) {
                continue;
            }
        }
        throw new NoSuchFieldException(type.getName() + "#" + name);
    }
}
